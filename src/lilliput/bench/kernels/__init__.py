"""Every kernel beside what it cannot beat and what others reach: `measure.py` is where to begin reading."""
