"""How soon the job of a killed worker starts again: holdfast and its peers in one run."""
