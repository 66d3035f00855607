"""The paper's models and others for comparison, in one typed table: name -> how to build, inputs, search space."""

from sobgnn.baselines.source import Operator, Source
from sobgnn.baselines.space import Choice, Setting, Space, Uniform, draw_settings
from sobgnn.baselines.table import MODELS, Baseline, Call

__all__ = ["MODELS", "Baseline", "Call", "Choice", "Operator", "Setting", "Source", "Space", "Uniform", "draw_settings"]
