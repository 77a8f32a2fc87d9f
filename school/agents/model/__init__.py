"""The built-in loop over a model endpoint, and single calls to a model.

``ask`` is one call without tools (reviewers, advisers); ``run`` drives the loop, a process of its own below the warden;
``endpoint`` is what both know about talking to a provider. The library that speaks to providers is heavy, so each
module here imports it inside functions, and an installation without it says ``not_installed``.
"""
