"""A federation described by a recipe, on Flower."""
