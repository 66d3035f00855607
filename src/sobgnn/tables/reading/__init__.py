"""Files and folders of points as tables of cells, and as features."""
