"""What is measured for the paper. A study ends in `PARTS` where its parts differ by data and claims alone."""
