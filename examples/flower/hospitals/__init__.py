"""A federation of hospitals with Flower."""
