"""Small models as users of PyTorch write them: plain ones, torchvision's and
those of transformers, with the smallest sizes that keep their structure.

CASES: name -> a function that makes a Case. Every random number follows from the
seed that the caller sets before."""

# Each registers its cases in CASES, in this order.
import vector_cases  # noqa: F401
import click_cases  # noqa: F401
import image_cases  # noqa: F401
import sequence_cases  # noqa: F401
import transformers_cases  # noqa: F401
from case import BATCH, CASES, STEPS  # noqa: F401
