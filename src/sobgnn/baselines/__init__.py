"""The paper's models and their peers, behind one typed table: name -> how to build, what it reads, search space."""

from sobgnn.baselines.source import Operator, Source
from sobgnn.baselines.space import Choice, Setting, Space, Uniform, draw_settings
from sobgnn.baselines.table import MODELS, Baseline, Call

__all__ = ["MODELS", "Baseline", "Call", "Choice", "Operator", "Setting", "Source", "Space", "Uniform", "draw_settings"]
