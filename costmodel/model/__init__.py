"""The ranking model: features, fitted weights, ranking and intervals."""
