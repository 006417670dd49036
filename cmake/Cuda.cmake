# GPU code where a CUDA compiler is found (12.8 or newer), left out with one line where none is. LOCKSTEP_CUDA_COMPILER names another
# nvcc than the one on the path. One object a .cu file, for every architecture below; no relocatable device code.
#   lockstep_cuda_objects(TARGET FILES...): compiles them and adds them to the target
option(LOCKSTEP_CUDA "Build the CUDA backend where nvcc 12.8 or newer is found" ON)
set(LOCKSTEP_CUDA_ARCHITECTURES 80 90a 100a CACHE STRING "Compute capabilities that GPU code is compiled for")
set(LOCKSTEP_CUDA_FOUND OFF)
if(LOCKSTEP_CUDA AND NOT LOCKSTEP_SANITIZE AND NOT LOCKSTEP_TSAN AND NOT LOCKSTEP_FUZZ)
  find_program(LOCKSTEP_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
  if(NOT LOCKSTEP_CUDA_COMPILER)
    message(STATUS "CUDA: no nvcc was found; the device cuda is left out")
  else()
    execute_process(COMMAND ${LOCKSTEP_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" nvcc_version "${nvcc_version}")
    set(nvcc_version "${CMAKE_MATCH_1}")
    # The toolkit lies where nvcc says its own folder is; on the path there may be a script or a link.
    execute_process(COMMAND ${LOCKSTEP_CUDA_COMPILER} --dryrun -c x.cu OUTPUT_QUIET ERROR_VARIABLE nvcc_plan)
    string(REGEX MATCH "#\\$ TOP=([^\n]+)" nvcc_top "${nvcc_plan}")
    get_filename_component(cuda_root "${CMAKE_MATCH_1}" REALPATH)
    find_path(LOCKSTEP_CUDA_INCLUDE cuda_runtime_api.h PATHS ${cuda_root}/include ${cuda_root}/targets/x86_64-linux/include NO_DEFAULT_PATH)
    find_library(LOCKSTEP_CUDA_RUNTIME cudart_static PATHS ${cuda_root}/lib64 ${cuda_root}/lib ${cuda_root}/targets/x86_64-linux/lib NO_DEFAULT_PATH)
    if(NOT nvcc_version OR nvcc_version VERSION_LESS 12.8)
      message(STATUS "CUDA: ${LOCKSTEP_CUDA_COMPILER} is ${nvcc_version}, needed is 12.8 or newer; the device cuda is left out")
    elseif(NOT LOCKSTEP_CUDA_INCLUDE OR NOT LOCKSTEP_CUDA_RUNTIME)
      message(STATUS "CUDA: ${cuda_root} lacks cuda_runtime_api.h or libcudart_static.a; the device cuda is left out")
    else()
      set(LOCKSTEP_CUDA_FOUND ON)
      message(STATUS "CUDA: nvcc ${nvcc_version}, for compute capabilities ${LOCKSTEP_CUDA_ARCHITECTURES}")
    endif()
  endif()
endif()

function(lockstep_cuda_objects target)
  set(launcher ${CCACHE})
  set(architectures)
  foreach(architecture ${LOCKSTEP_CUDA_ARCHITECTURES})
    list(APPEND architectures -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  foreach(source ${ARGN})
    get_filename_component(stem ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${stem}.o)
    # No contraction, no flushing, IEEE division and roots: the CPU's bits.
    add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d VERBATIM COMMENT "Building CUDA object ${stem}"
      COMMAND ${launcher} ${LOCKSTEP_CUDA_COMPILER} -std=c++20 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr
              -Werror all-warnings ${architectures} -I${CMAKE_SOURCE_DIR}/src -Xcompiler -Wall,-Werror,-ffp-contract=off,-mfma,-mavx2,-mf16c
              -MD -MF ${object}.d -c ${source} -o ${object})
    target_sources(${target} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endforeach()
endfunction()
