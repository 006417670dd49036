// The program's entry: checks the processor, then runs the command (commands.h). This file alone is compiled for any x86-64; the rest of the
// tree may use AVX2 and FMA anywhere, even in initialisers that run before main. So the check comes before all of that, and uses nothing
// of the C++ library, whose inline functions the linker may have taken from files compiled for AVX2.
#include <unistd.h>

int lockstep_main(int argc, char** argv);

namespace {
constexpr int kFirst = 101;  // the lowest priority number that is not reserved: before every static initialiser

__attribute__((constructor(kFirst))) void require_processor() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return;
  constexpr char kRefusal[] = "error: this processor lacks AVX2, FMA or F16C; lockstep needs all three (Intel 2013, AMD 2015)\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kRefusal, sizeof kRefusal - 1);
  _exit(1);
}
}  // namespace

int main(int argc, char** argv) { return lockstep_main(argc, argv); }
