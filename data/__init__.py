"""Hardware profiles, measured runs, trained models and shape sets."""
