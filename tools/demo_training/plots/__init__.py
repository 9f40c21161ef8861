"""All plots. Their order decides which tale a seed tells."""

from __future__ import annotations

from demo_training.plots.contests import BOAST, MOON, RACE, RIDDLE
from demo_training.plots.dangers import AFRAID, CHEER, LIGHT, STUCK
from demo_training.plots.plot import INTRO_OWNED, INTRO_PLACE, Plot
from demo_training.plots.treasures import FOUND, LOST, QUARREL, SHARE
from demo_training.plots.wishes import CLIMB, JOURNEY, WISH
from demo_training.plots.works import GIFT, GROW, MEND, MUSIC

__all__ = ["INTRO_OWNED", "INTRO_PLACE", "PLOTS", "Plot"]

PLOTS = (LOST, AFRAID, MEND, WISH, RACE, BOAST, STUCK, FOUND, MUSIC, GROW, LIGHT, MOON, GIFT, QUARREL, JOURNEY, CLIMB, SHARE, CHEER, RIDDLE)
