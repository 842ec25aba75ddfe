"""Named recipes, runs over rules and seeds, and the experiments of the letter."""
