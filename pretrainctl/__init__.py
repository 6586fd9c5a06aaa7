"""pretrainctl: LLM pretraining runs on Slurm that carry themselves to their token target."""

__version__ = "0.1.0"
