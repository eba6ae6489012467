# SPDX-License-Identifier: Apache-2.0
# gpumem gpus and calibrate: what is listed, an instance of a GPU, and that a virtual GPU is never called measured.
# shellcheck shell=bash

like "$(user gpumem gpus)" "NVIDIA GeForce RTX 5090 .*12\.0" "the list has models of 2018 to 2025"
like "$(user gpumem gpus --mig)" "NVIDIA H200 MIG 1g\.18gb +16\.0 GiB" "and the instances that they can be cut into"
said=$(user gpumem calibrate 2>&1)
isnt $? 0 "without a driver nothing is calibrated"
like "$said" "machine with the GPU" "which is said"

user gpumem estimate --gpu "A100-SXM4-40GB MIG 2g.10gb" --full -- gpumem calibrate --python python >"$WORK/.estimate" 2>"$WORK/.stderr"
is $? 0 "on a virtual GPU all of it runs"
sed -n '/^{/,/^}/p' "$WORK/.stderr" >"$WORK/profile.json"
value() { /usr/bin/python3 -c 'import json, sys; p = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$WORK/profile.json" "$1"; }
is "$(value 'p["name"]')" "NVIDIA A100-SXM4-40GB MIG 2g.10gb" "the driver's name is the profile's"
is "$(value 'p["fields"]["sm_count"]["value"], p["fields"]["mig"]["value"], p["fields"]["copy_engines"]["value"]')" "(28, 1, 2)" "its properties too"
is "$(value '0 <= p["fields"]["total_bytes"]["value"] - p["fields"]["usable_bytes"]["value"] < 40 << 20')" True "PyTorch could take all memory there is"
is "$(value 'p["contexts"][0]["warm_bytes"] >= p["contexts"][0]["bare_bytes"] > 0')" True "the context was measured by NVML"
is "$(value '{f["source"] for f in p["fields"].values()} | {c["source"] for c in p["contexts"]}')" "{'assumed'}" "but nothing says that it was measured"
said=$(user gpumem estimate --gpu "$WORK/profile.json" -- true 2>&1)
is $? 2 "the profile of a virtual GPU is refused"
like "$said" "virtual GPU" "which is said"
