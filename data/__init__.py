"""Hardware profiles, measured runs, trained models, shape sets, other tools' lists."""
