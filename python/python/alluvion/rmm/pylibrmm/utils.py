"""Nothing at the level of Python: RMM has this module for its compiled users."""

__all__: list[str] = []
