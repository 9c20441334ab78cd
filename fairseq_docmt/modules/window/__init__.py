"""Window attention and long-short term attention (Herold and Ney 2023)."""
