"""One file a framework: plan -> launch, and where its checkpoints lie."""
