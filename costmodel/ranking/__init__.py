"""From physics to an order: features, the fitted correction, and baselines."""
