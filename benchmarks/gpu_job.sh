#!/usr/bin/env bash
# Runs tests, benchmarks and studies on a GPU, in steps of at most 9 minutes: correctness, then the speed of vanilla
# fairseq and rskip, then the studies that take too long on a CPU.
#
#   scripts/gather-gpu-wheels.sh gpu-wheels                 on a machine with network: gathers missing packages
#   benchmarks/gpu_job.sh [--tiny] [--list] [STEP...]       on the machine with the GPU, in a checkout; --list lists the steps
#
# Each step writes gpu-job/STEP.log. Benchmarks write gpu-job/*.jsonl; append these to study/results/benchmarks/ by hand.
# A completed step is not repeated. A failed step does not stop the next one. If OUT is set, everything is packed into
# $OUT/gpu_job.tar.gz after every step. --tiny checks on a CPU, in a few minutes, that the steps run.
# PYTHON is the Python that has PyTorch (default: python3), JOB the output folder (default: gpu-job), and WHEELS the
# folder of wheels (default: gpu-wheels). A study's step makes the missing records, AT_ONCE runs (default 4) in parallel.
# If its 9 minutes are over, name the step again to continue. DATA (default: gpu-data) is a folder with the data:
# multi30k/ with the upstream files (2 MB), tinyshakespeare/ with input.txt (1 MB), and cifar10/ with the six batches and
# batches.meta, which may be packed with xz. Files may be added between calls. The comments of en_vi_30k.yaml and
# cifar10_resnet20_search.yaml say how to make en-vi-30k/ and cifar10-45k.npz.
set -u
cd "$(dirname "$0")/.." || exit 1
job=$(realpath -m "${JOB:-gpu-job}") wheels=${WHEELS:-gpu-wheels} data=$(realpath -m "${DATA:-gpu-data}") limit=540
tiny='' list='' chosen=()
for word in "$@"; do
    case $word in
        --tiny) tiny=yes ;;
        --list) list=yes ;;
        -*) echo "gpu_job.sh: error: unknown option $word: expected --tiny, --list or names of steps" >&2; exit 2 ;;
        *) chosen+=("$word") ;;
    esac
done
for name in "${chosen[@]}"; do
    steps=$(benchmarks/gpu_job.sh ${tiny:+--tiny} --list | tr '\n' ' ')
    if [[ " $steps" != *" $name "* ]]; then
        echo "gpu_job.sh: error: unknown step $name: expected some of $steps" >&2
        exit 2
    fi
done
[ -n "$list" ] || mkdir -p "$job"
python=$job/env/bin/python
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4} PYTHONWARNINGS=ignore TOKENIZERS_PARALLELISM=false

# Creates an environment with the packages of the Python with PyTorch, the wheels and rskip.
setup() {
    local outer=${PYTHON:-python3}
    "$outer" -m venv --without-pip "$job/env" || return
    "$outer" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth" || return
    if compgen -G "$wheels/*.whl" >/dev/null; then
        "$outer" -m pip --python "$python" install --quiet --no-index --no-deps "$wheels"/*.whl || return
    fi
    "$outer" -m pip --python "$python" install --quiet --no-index --no-deps --no-build-isolation --editable . || return
    "$python" -c 'from rskip.machine.fairseq_setup import install_hook; install_hook()' || return
    printf '#!%s\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n' "$python" >"$job/env/bin/torchrun"
    chmod +x "$job/env/bin/torchrun" || return
    "$python" -c 'import torch, fairseq, rskip; print(torch.__version__, fairseq.__version__, rskip.__version__)' || return
    "$python" -c 'import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU")'
}

# step NAME COMMAND...
step() {
    local name=$1 start=$SECONDS status
    shift
    if [ -n "$list" ]; then echo "$name"; return; fi
    if [ ${#chosen[@]} -gt 0 ] && [[ " ${chosen[*]} " != *" $name "* ]]; then return; fi
    if [ -e "$job/$name.done" ]; then echo "$name: done before"; return; fi
    if [ "$1" = setup ]; then setup; else timeout --kill-after=10 $limit "$@"; fi >"$job/$name.log" 2>&1
    status=$?
    if [ $status -eq 0 ]; then
        touch "$job/$name.done"
        echo "$name: done in $((SECONDS - start)) s"
    else
        failed+=("$name")
        echo "$name: failed with status $status after $((SECONDS - start)) s: $(tail -n 1 "$job/$name.log" | cut -c -160)"
    fi
    if [ -n "${OUT:-}" ]; then
        tar --create --gzip --exclude=./env --exclude=./studies/runs --exclude=./studies/data-bin \
            --file "$OUT/gpu_job.tar.gz" --directory "$job" .
    fi
}

failed=()
if [ -n "$tiny" ]; then
    export TORCH_COMPILE_DISABLE=1 # compiling takes minutes on a CPU
    limit=3600 device=cpu train="--rounds 1 --steps 1" small=32 large=64 decode="--quick --only small --rounds 1 --threads 1" kernels="--rounds 1 --tokens 32 --features 64" vision="--rounds 1 --steps 1 --batch-size 2"
else
    device=cuda train="--rounds 7 --steps 3" small=4096 large=16384 decode="--rounds 5" kernels="" vision=""
fi
benchmark() { # FILE ARGUMENTS...
    local name=$1
    shift
    echo "$python benchmarks/$name.py --device $device --output $job/$name.jsonl $*"
}
# study STEP DATA RECIPE VARIANTS SEEDS VARIANT. With --tiny it runs a few updates of VARIANT on a small task.
study() {
    local options="--variants '$4' --seeds $5 --gpus 1"
    if [ -n "$tiny" ]; then
        options="--variants $6 --gpus 0 --set corpus=numbers-en-de prepare.pairs=400 prepare.size=100 train.max-epoch=1"
        options+=" average.last=1 generate.beam=1 generate.max-len-b=10"
        case $2 in
            cifar10) options="--variants $6 --gpus 0 --set train.iterations=2 train.depth=8" ;;
            tinyshakespeare) options="--variants $6 --gpus 0 --set train.iterations=2 train.warmup_iterations=1" ;;
        esac
    fi
    local run="rskip run recipes/$3.yaml $options --mirror $data/$2 --commands"
    step "$1" env PATH="$job/env/bin:$PATH" RSKIP_DATA="$job/data" sh -c "
        mkdir -p $job/studies && ln -sfn $PWD/recipes $data/$2 $job/studies/ && cd $job/studies || exit
        $run >missing || exit
        xargs -r -P ${AT_ONCE:-4} -I{} sh -c '{}' <missing
        $run >missing && ! grep . missing"
}
# shellcheck disable=SC2046,SC2086  # words are wanted
{
    step setup setup
    step correctness "$python" -m pytest -q -p no:cacheprovider tests/gpu
    step train_$small $(benchmark train_speed $train --tokens $small)
    step train_$large $(benchmark train_speed $train --tokens $large)
    step train_compiled $(benchmark train_speed $train --tokens $small --compile-layers)
    step profile $(benchmark train_speed --rounds 1 --steps 1 --tokens $small --profile $job/profile)
    step kernels $(benchmark gpu_kernels $kernels)
    step decode $(benchmark decode $decode)
    step vision_connections $(benchmark vision_speed $vision --only connections)
    step vision_depths $(benchmark vision_speed $vision --only depths)
    study lr_map multi30k multi30k_lr '*' '1 2 3' 2rskip_ln_lr2e-3
    study sas_variants multi30k multi30k_sas '*' '1 2 3' branch_norm
    study lm_field tinyshakespeare lm_field 'l4_*' '1 2 3' l4_2rskip_ln_lr3e-3
    study lm_field_deep tinyshakespeare lm_field 'l24_*_lr1e-3' '1 2 3' l24_2rskip_ln_lr1e-3
    study field multi30k field '6x6_*_lr2e-3' '1 2 3' 6x6_mhc_lr2e-3
    study seeds multi30k multi30k_en_de '*' '1 2 3' 2xskip_ln
    study multi30k_de_en multi30k multi30k_de_en '*' '1 2 3' 2xskip_ln
    study multi30k_fr_en multi30k multi30k_fr_en '*' '1 2 3' 2xskip_ln
    study depth_110_short cifar10 cifar10_short '*' '1 2 3' preact110_2rskip_ln
    study depth_110 cifar10 cifar10_preact110 '*' 1 2rskip_ln
    if [ -z "$tiny" ]; then
        study en_vi_30k en-vi-30k en_vi_30k '*' '1 2 3' ''
        study resnet20_search cifar10-45k.npz cifar10_resnet20_search '*' 1 ''
        study resnet20 cifar10 cifar10_resnet20 'preact20_1xskip preact20_2rskip_ln' '1 2 3' ''
    fi
}
[ ${#failed[@]} -eq 0 ]
