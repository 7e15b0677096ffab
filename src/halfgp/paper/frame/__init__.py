"""What every part of the paper is run in: its circumstances, what is kept of it, and the page."""
