"""HTML report that compares systems by scores and plots, and shows translations side by side."""
