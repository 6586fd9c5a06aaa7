"""The drill: every fault on purpose, on a real Slurm, judged by the runs' own records.

`run` is the harness, `faults` the table, `scene` what a fault is played on, `verdict` how it is judged. `program` and
`ranks` run inside the job.
"""
