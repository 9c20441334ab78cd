"""HTML report that compares systems by scores, plots and their documents side by side."""
