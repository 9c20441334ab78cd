"""Modules with parameters, and the state they carry while decoding."""
