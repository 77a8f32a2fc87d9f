"""How teachers judge: the deterministic checks, and the verdict that their findings make."""
