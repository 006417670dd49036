#!/bin/sh
# Builds beside a CUDA toolkit, where a GPU is and where none is, without ccache: a stand-in nvcc makes empty objects, so nothing here
# compiles for a GPU (.ci/run does). Only configures, and makes one target.
set -u
cd "$LOCKSTEP_ROOT" || exit 1

# A toolkit as cmake/Cuda.cmake looks at it.
toolkit=$LOCKSTEP_TMP/toolkit
mkdir -p "$toolkit/bin" "$toolkit/include" "$toolkit/lib64"
touch "$toolkit/lib64/libcudart_static.a"
cat >"$toolkit/include/cuda_runtime_api.h" <<'END'
#error "the stand-in's header"
END
cat >"$toolkit/bin/nvcc" <<END
#!/bin/sh
out= dependencies= source=
while [ \$# -gt 0 ]; do
  case \$1 in
    --version) echo 'Cuda compilation tools, release 13.0, V13.0.88'; exit ;;
    --dryrun) echo '#\$ TOP=$toolkit' >&2; exit ;;
    -o) out=\$2; shift ;;
    -MF) dependencies=\$2; shift ;;
    *.cu) source=\$1 ;;
  esac
  shift
done
echo "\$out: \$source" >"\$dependencies"
echo "made from \$source" >"\$out"
END
chmod +x "$toolkit/bin/nvcc"

# Headers of NCCL as cmake/Nccl.cmake looks at them, one of them too old.
for version in 17 18; do
  mkdir -p "$LOCKSTEP_TMP/nccl-$version"
  printf '#define NCCL_MAJOR 2\n#define NCCL_MINOR %s\n#define NCCL_PATCH 1\n' $version >"$LOCKSTEP_TMP/nccl-$version/nccl.h"
  touch "$LOCKSTEP_TMP/nccl-$version/libnccl.so"
done

# Every program of this machine but ccache and what says of GPUs, in a folder of links.
mkdir "$LOCKSTEP_TMP/bin" "$LOCKSTEP_TMP/gpu"
for folder in /usr/bin /bin /usr/local/bin; do ln -s $folder/* "$LOCKSTEP_TMP/bin/" 2>/dev/null; done
rm -f "$LOCKSTEP_TMP/bin/ccache" "$LOCKSTEP_TMP/bin/nvidia-smi" "$LOCKSTEP_TMP/bin/nvcc"
printf '#!/bin/sh\necho "GPU 0: Stand-in (UUID: none)"\n' >"$LOCKSTEP_TMP/gpu/nvidia-smi"
chmod +x "$LOCKSTEP_TMP/gpu/nvidia-smi"

# configured NAME PATH OPTIONS...: the folder NAME, for a machine without device files of a GPU.
configured() {
  name=$1 path=$2
  shift 2
  env PATH="$path:$LOCKSTEP_TMP/bin" /usr/bin/cmake -S . -B "$LOCKSTEP_TMP/$name" -G Ninja -DCMAKE_MAKE_PROGRAM=/usr/bin/ninja -DCMAKE_BUILD_TYPE=Release \
    '-DCMAKE_IGNORE_PATH=/usr/bin;/bin;/usr/sbin;/sbin;/usr/local/bin;/usr/local/sbin' -DLOCKSTEP_GPU_FILES=/nonexistent/nvidia0 "$@" >"$LOCKSTEP_TMP/$name.log" 2>&1 || {
    tail -n 20 "$LOCKSTEP_TMP/$name.log"
    echo "FAIL $name cmake failed"
    return 1
  }
}
# What building the program would run. Objects for GPUs and the launcher of compilers show in it.
commands() { /usr/bin/ninja -C "$LOCKSTEP_TMP/$1" -t commands lockstep; }
verdict() { # NAME REASON: passed when REASON is empty
  if [ -z "$2" ]; then echo "PASS $1"; else echo "FAIL $1 $2"; fi
}

if configured no-gpu "$toolkit/bin"; then
  reason=
  grep -q '^CCACHE:FILEPATH=CCACHE-NOTFOUND$' "$LOCKSTEP_TMP/no-gpu/CMakeCache.txt" || reason="ccache was found, so this shows nothing"
  commands no-gpu | grep -q 'CCACHE-NOTFOUND' && reason="commands begin with CCACHE-NOTFOUND"
  commands no-gpu | grep -q 'nvcc' && reason="GPU code would be compiled for a machine without a GPU"
  verdict no-gpu "$reason"
  # The target that .ci/run makes: each kernel, for one architecture. What calls the CUDA runtime wants a real one.
  reason=
  /usr/bin/ninja -C "$LOCKSTEP_TMP/no-gpu" cuda_kernels_80 >"$LOCKSTEP_TMP/ninja.log" 2>&1 || reason="ninja failed: $(tail -n 3 "$LOCKSTEP_TMP/ninja.log" | tr '\n' ' ')"
  for file in src/kernels/*/*.cu; do
    [ -s "$LOCKSTEP_TMP/no-gpu/cuda/80/$(basename "$file" .cu).o" ] || reason="${reason:-no object was made of $file}"
  done
  /usr/bin/ninja -C "$LOCKSTEP_TMP/no-gpu" -t commands cuda_80 | grep -q 'tensor/cuda_stream.cpp' || reason="cuda_80 leaves out what calls the CUDA runtime"
  /usr/bin/ninja -C "$LOCKSTEP_TMP/no-gpu" -t commands cuda_80 | grep -q 'sm_90a' && reason="cuda_80 compiles for others too"
  verdict objects "$reason"
fi
if configured gpu "$LOCKSTEP_TMP/gpu:$toolkit/bin" "-DLOCKSTEP_NCCL_INCLUDE=$LOCKSTEP_TMP/nccl-18" "-DLOCKSTEP_NCCL_LIBRARY=$LOCKSTEP_TMP/nccl-18/libnccl.so"; then
  reason=
  commands gpu | grep -q 'nvcc .*sm_80.*sm_90a.*sm_100a.*attention\.cu' || reason="no GPU code would be compiled where a GPU is"
  commands gpu | grep -q 'CCACHE-NOTFOUND' && reason="commands begin with CCACHE-NOTFOUND"
  verdict gpu "$reason"
  reason=
  grep -q 'NCCL: 2.18; it has not run' "$LOCKSTEP_TMP/gpu.log" || reason="it does not say that NCCL was found"
  commands gpu | grep -q 'nccl_module.cpp' || reason="the module of NCCL would not be built with the program"
  /usr/bin/ninja -C "$LOCKSTEP_TMP/gpu" -t commands cuda_80 | grep -q 'nccl_module.cpp' || reason="cuda_80 leaves out the module of NCCL"
  verdict nccl "$reason"
fi
if configured asked-for "$toolkit/bin" -DLOCKSTEP_CUDA=ON "-DLOCKSTEP_NCCL_INCLUDE=$LOCKSTEP_TMP/nccl-17"; then
  reason=
  commands asked-for | grep -q 'nvcc .*attention\.cu' || reason="no GPU code would be compiled though it is asked for"
  verdict asked-for "$reason"
  reason=
  grep -q 'is 2.17, needed is 2.18 or newer' "$LOCKSTEP_TMP/asked-for.log" || reason="it does not say that NCCL is too old"
  commands asked-for | grep -q 'nccl_module.cpp' && reason="a module would be built from a header that is too old"
  verdict old-nccl "$reason"
fi
if configured no-toolkit "$LOCKSTEP_TMP/gpu" -DLOCKSTEP_CUDA_COMPILER=LOCKSTEP_CUDA_COMPILER-NOTFOUND '-DCMAKE_IGNORE_PATH=/usr/bin;/bin;/usr/local/bin;/usr/local/cuda/bin'; then
  reason=
  grep -q 'CUDA: no nvcc was found; the device cuda is left out' "$LOCKSTEP_TMP/no-toolkit.log" || reason="it does not say that no nvcc was found"
  grep -q 'NCCL: left out' "$LOCKSTEP_TMP/no-toolkit.log" || reason="it does not say that NCCL is left out"
  verdict no-toolkit "$reason"
fi
# The module itself, where there are real headers.
header=
for folder in "${NCCL_INCLUDE:-/nonexistent}" /usr/include /usr/local/cuda/include; do
  if [ -z "$header" ] && [ -e "$folder/nccl.h" ]; then header=$folder; fi
done
if [ -z "$header" ] || [ ! -e /usr/local/cuda/include/cuda_runtime.h ]; then
  echo "SKIP nccl-compiles no nccl.h, or no CUDA toolkit in /usr/local/cuda (NCCL_INCLUDE names the header's folder)"
else
  reason=
  c++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -isystem "$header" -isystem /usr/local/cuda/include -Isrc src/parallel/nccl/nccl_module.cpp >"$LOCKSTEP_TMP/nccl.log" 2>&1 ||
    reason="$(head -n 3 "$LOCKSTEP_TMP/nccl.log" | tr '\n' ' ')"
  verdict nccl-compiles "$reason"
fi
