#include "parallel/process_ranks.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "base/error.h"
#include "parallel/process_communicator.h"

namespace lockstep {

namespace {

// The process that has a rank: process p has ranks [size * p / processes, size * (p + 1) / processes).
int first_rank_of(int process, int size, int processes) { return static_cast<int>(static_cast<std::int64_t>(size) * process / processes); }

// How a part of a run ended, from what it threw.
RunEnd run_end_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RankReleased&) {
    return {RunEnd::State::released, ErrorCode::cancelled, {}};
  } catch (const Error& e) {
    return {RunEnd::State::failed, e.code(), e.what()};
  } catch (const std::bad_alloc&) {
    return {RunEnd::State::failed, ErrorCode::resource_exhausted, "no memory is left"};
  } catch (const std::exception& e) {
    return {RunEnd::State::failed, ErrorCode::internal, e.what()};
  } catch (...) {
    return {RunEnd::State::failed, ErrorCode::internal, "an exception without a word"};
  }
}

}  // namespace

ProcessRanks::ProcessRanks(const RankLayout& layout, ProcessMail& mail, DeviceWire* device)
    : layout_(layout), mail_(mail), device_(mail.processes() > 1 ? device : nullptr) {
  const int size = layout.size(), processes = mail.processes();
  if (processes > size)
    fail(ErrorCode::invalid_argument, "ranks is {}, which are {}, and there are {} processes; allowed is a rank for each", layout.text(), size, processes);
  if (device_ && processes < size)
    fail(ErrorCode::invalid_argument, "ranks is {}, which are {}, and there are {} processes; allowed with a device for each process is one rank for each",
         layout.text(), size, processes);
  first_ = first_rank_of(mail.process(), size, processes);
  ends_.resize(static_cast<std::size_t>(first_rank_of(mail.process() + 1, size, processes) - first_));
  worked_.resize(ends_.size());
  std::vector<ProcessCommunicator::Member> all;
  for (int p = 0; p < processes; ++p)
    for (int rank = first_rank_of(p, size, processes); rank < first_rank_of(p + 1, size, processes); ++rank) all.push_back({rank, p});
  // Groups by (kind, colour), as in MPI_Comm_split; ranks are numbered in ascending order.
  int kind = 0;
  const auto join = [&](std::unique_ptr<Communicator> Ends::*end, const std::function<int(int)>& colour) {
    for (int local = 0; local < this->local(); ++local) {
      std::vector<ProcessCommunicator::Member> members;
      int own = 0;
      for (const auto& member : all) {
        if (colour(member.rank) != colour(first_ + local)) continue;
        if (member.rank == first_ + local) own = static_cast<int>(members.size());
        members.push_back(member);
      }
      ends_[static_cast<std::size_t>(local)].*end = std::make_unique<ProcessCommunicator>(mail_, device_, kind, std::move(members), own);
    }
    ++kind;
  };
  join(&Ends::world, [](int) { return 0; });
  join(&Ends::tensor, [&](int rank) { return rank / layout_.tp; });
  join(&Ends::model, [&](int rank) { return rank / layout_.model(); });
  join(&Ends::data, [&](int rank) { return layout_.replica_of(rank); });
  join(&Ends::stages, [&](int rank) { return layout_.peers_of(rank); });
  join(&Ends::context, [&](int rank) { return layout_.fellows_of(rank); });
  const auto end_of = [&](int rank) { return rank < first_ || rank >= first_ + local() ? nullptr : &ends_[static_cast<std::size_t>(rank - first_)]; };
  for (const auto& [rank, next] : layout_.links()) {
    const std::vector<ProcessCommunicator::Member> pair{all[static_cast<std::size_t>(rank)], all[static_cast<std::size_t>(next)]};
    if (Ends* own = end_of(rank)) own->after = std::make_unique<ProcessCommunicator>(mail_, device_, kind, pair, 0);
    if (Ends* own = end_of(next)) own->before = std::make_unique<ProcessCommunicator>(mail_, device_, kind, pair, 1);
  }
}

ProcessRanks::~ProcessRanks() = default;

RankPlace ProcessRanks::place(int local) const {
  if (size() == 1) return {};
  const Ends& ends = ends_[static_cast<std::size_t>(local)];
  return {layout_,         first_ + local,    ends.world.get(),  ends.tensor.get(), ends.model.get(),
          ends.data.get(), ends.stages.get(), ends.before.get(), ends.after.get(),  ends.context.get()};
}

void ProcessRanks::join_devices() {
  if (!device_) return;
  Communicator& world = *ends_[0].world;
  device_->join(
      mail_.process(), mail_.processes(), [&](const std::string& mine) { return world.gather_host(mine); }, [this] { mail_.check_run(); });
}

void ProcessRanks::run(const std::function<void(int)>& work) {
  mail_.begin_run();
  for (Ends& ends : ends_)
    for (const auto* end : {&ends.world, &ends.tensor, &ends.model, &ends.data, &ends.stages, &ends.before, &ends.after, &ends.context})
      if (*end) static_cast<ProcessCommunicator&>(**end).begin_run();
  std::exception_ptr error;
  std::mutex mutex;
  const auto guarded = [&](int local) {
    const WorkedSeconds clock(worked_[static_cast<std::size_t>(local)]);
    try {
      join_devices();
      work(local);
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
      mail_.release();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int l = 1; l < local(); ++l) threads.emplace_back(guarded, l);
    guarded(0);
  } catch (...) {  // no thread more
    const std::lock_guard lock(mutex);
    error = std::current_exception();
    mail_.release();
  }
  for (std::thread& thread : threads) thread.join();
  const RunEnd own = error ? run_end_of(error) : RunEnd{};
  std::vector<RunEnd> ends;
  try {
    ends = mail_.finish_run(own);
  } catch (...) {  // others cannot be asked any more: what went wrong here says more than that
    if (device_) device_->give_up();
    if (own.state == RunEnd::State::failed) std::rethrow_exception(error);
    throw;
  }
  // Every process sees the same ends, so all join anew in the next run.
  if (device_ && std::any_of(ends.begin(), ends.end(), [](const RunEnd& end) { return end.state != RunEnd::State::done; })) device_->give_up();
  for (int p = 0; p < mail_.processes(); ++p) {
    const RunEnd& end = ends[static_cast<std::size_t>(p)];
    if (end.state != RunEnd::State::failed) continue;
    if (p == mail_.process()) std::rethrow_exception(error);
    Error told(end.code, end.message);
    told.add_context(fmt::format("computing in process {}", p));
    throw told;
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep
