"""Time from physics: traffic, waves, roofline, estimate."""
