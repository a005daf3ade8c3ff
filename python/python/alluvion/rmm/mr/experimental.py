"""Resources that RMM calls experimental."""

__all__: list[str] = []
