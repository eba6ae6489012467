# SPDX-License-Identifier: Apache-2.0
# A --gpumem that is neither auto, off nor a size is a usage error: nothing is submitted, by whichever way it is given.
# shellcheck shell=bash

before=$(number_of_jobs)
for wrong in abc 0 -4G 4Q 1.5.2G; do
  submit --gpumem=$wrong --gres=gpu:1 --wrap true
  isnt "$STATUS" 0 "sbatch --gpumem=$wrong fails"
done
like "$SAID" 'gpumem.*1.5.2G.*auto, off or a size' "and says what is wrong and what is right"
script wrong.sh <<'END'
#!/bin/bash
#SBATCH --gpumem=plenty
#SBATCH --gres=gpu:1
true
END
submit wrong.sh
isnt "$STATUS" 0 "so does #SBATCH --gpumem=plenty"
user srun --gpumem=abc --gres=gpu:1 true 2>"$WORK/.stderr"
isnt $? 0 "srun fails"
user salloc --gpumem=abc --gres=gpu:1 true 2>"$WORK/.stderr"
isnt $? 0 "salloc fails"
is "$(number_of_jobs)" "$before" "nothing was submitted"
