#!/bin/bash
# A remote shell of Slurm's for `lockstep launch --agent` where nodes have no ssh: srun_agent.sh HOST WORDS runs the words there by a shell, as ssh does.
host=$1
shift
exec srun --overlap --quiet --nodes=1 --ntasks=1 --nodelist="$host" --immediate=5 --input=none --export=ALL bash -c "$*"
