"""What a teacher is made of: ``presence``, its record for others to see; ``desk``, one review from bag to verdict."""
