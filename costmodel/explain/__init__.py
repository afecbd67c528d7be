"""Turns a prediction into words and pictures: report, doctor, ladder, plots."""
