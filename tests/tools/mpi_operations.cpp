// Run by mpirun with 1 to 3 processes: every operation of a communicator over Open MPI has the bytes of threads; what does not fit, a rank that
// fails and a process that dies are errors of all. Prints a line a check in process 0; the status is 0 when all hold.
//   mpirun -n 2 build/mpi_operations operations|refusals|death
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "parallel/mpi_wire.h"
#include "parallel/operations_test_tools.h"
#include "parallel/process_ranks.h"
#include "parallel/process_watch.h"
#include "parallel/thread_ranks.h"

namespace lockstep {
namespace {

int failures = 0;

void require(const ProcessMail& mail, bool holds, const std::string& what) {
  if (holds && mail.process() == 0) std::printf("ok %s\n", what.c_str());
  if (!holds) std::printf("FAILED in process %d: %s\n", mail.process(), what.c_str());
  failures += !holds;
}

void operations(ProcessMail& mail) {
  for (const RankLayout& layout : {RankLayout{1, 3, 1}, {3, 1, 1}, {2, 2, 1}, {1, 2, 2}, {2, 2, 2}})
    for (const std::uint64_t seed : {1u, 2u}) {
      ThreadRanks threads(layout);
      ProcessRanks ranks(layout, mail);
      const std::vector<std::string> want = operations_of(threads, seed), got = operations_of(ranks, seed);
      const bool traffic = traffic_of(ranks).bytes == traffic_of(threads).bytes;
      const std::vector<std::string> other = operations_of(threads, seed + 10);
      bool same = true, control = true;
      for (int local = 0; local < ranks.local(); ++local) {
        const auto rank = static_cast<std::size_t>(ranks.place(local).rank);
        same = same && got[static_cast<std::size_t>(local)] == want[rank];
        control = control && got[static_cast<std::size_t>(local)] != other[rank];
      }
      require(mail, same && control && traffic,
              fmt::format("{} over {} processes, seed {}: {} bytes seen by rank 0", layout.text(), mail.processes(), seed, want[0].size()));
    }
  // More than one message's worth on the way at once, in both directions.
  ProcessRanks ranks({1, 3, 1}, mail);
  ranks.run([&](int local) {
    Communicator& world = *ranks.place(local).world;
    const std::string mine(std::size_t{24} << 20, static_cast<char>('a' + world.rank()));
    const std::vector<std::string> all = world.gather_host(mine);
    for (int r = 0; r < world.size(); ++r)
      if (all[static_cast<std::size_t>(r)] != std::string(mine.size(), static_cast<char>('a' + r))) throw std::runtime_error("24 MB arrived as others");
  });
  require(mail, true, "24 MB from each to each");
}

std::string error_of(Ranks& ranks, const std::function<void(const RankPlace&)>& work) {
  try {
    ranks.run([&](int local) { work(ranks.place(local)); });
  } catch (const std::exception& e) {
    return e.what();
  }
  return "none";
}

void refusals(ProcessMail& mail) {
  ProcessRanks ranks({1, 3, 1}, mail);
  const std::string sizes = error_of(ranks, [](const RankPlace& place) {
    Device device(BackendKind::cpu, 1);
    const Buffer data = device.allocate_zero(DType::f32, 2 + (place.rank == 2), 2, MemoryCategory::workspace);
    broadcast(*place.world, device.stream(), data.view(), 0);
    place.world->barrier();
  });
  require(mail, sizes.find("rank 2 expects 3 x 2 of rank 0, which sends 2 x 2") != std::string::npos, "unequal sizes: " + sizes);
  const std::string thrown = error_of(ranks, [](const RankPlace& place) {
    for (int i = 0;; ++i) {
      if (place.rank == 2 && i == 3) throw std::runtime_error("rank 2 has enough");
      place.world->barrier();
    }
  });
  require(mail, thrown.find("rank 2 has enough") != std::string::npos, "a rank that fails: " + thrown);
  require(mail, error_of(ranks, [](const RankPlace& place) { place.world->barrier(); }) == "none", "the next run works");
}

// The last process dies while the others wait for it.
void death(ProcessMail& mail) {
  ProcessRanks ranks({1, 3, 1}, mail);
  const bool dies = mail.process() == mail.processes() - 1;
  const std::string told = error_of(ranks, [&](const RankPlace& place) {
    place.world->barrier();
    if (dies) std::raise(SIGKILL);
    place.world->barrier();
  });
  std::fprintf(stderr, "process %d was told: %s\n", mail.process(), told.c_str());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the first to leave ends the others
  require(mail, told.find(fmt::format("process {}", mail.processes() - 1)) != std::string::npos, "a process that dies is named");
}

}  // namespace
}  // namespace lockstep

int main(int count, char** words) {
  using namespace lockstep;
  try {
    std::unique_ptr<ProcessWatch> watch;  // outlives the mail
    ProcessMail mail(load_mpi_wire());
    watch = std::make_unique<ProcessWatch>(mail, std::chrono::seconds(60));
    const std::string which = count > 1 ? words[1] : "operations";
    if (which == "operations") operations(mail);
    else if (which == "refusals") refusals(mail);
    else if (which == "death") death(mail);
    else return std::fprintf(stderr, "'%s' is no check, allowed are operations, refusals and death\n", which.c_str()), 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
