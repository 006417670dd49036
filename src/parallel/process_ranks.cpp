#include "parallel/process_ranks.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "base/error.h"
#include "parallel/bins_codec.h"
#include "parallel/chosen_rows.h"
#include "parallel/exchange_counts.h"

namespace lockstep {

namespace {

// The process that has a rank: process p has ranks [size * p / processes, size * (p + 1) / processes).
int first_rank_of(int process, int size, int processes) { return static_cast<int>(static_cast<std::int64_t>(size) * process / processes); }

void check_views(std::size_t ranks, const std::vector<View>& to, const std::vector<View>& from) {
  if (to.size() != ranks || from.size() != ranks) fail(ErrorCode::internal, "an exchange of {} ranks has {} and {} views", ranks, to.size(), from.size());
}

class ProcessCommunicator final : public CountingCommunicator, public ChosenRowsTransport {
 public:
  struct Member {
    int rank, process;  // of the whole layout
  };
  ProcessCommunicator(ProcessMail& mail, DeviceWire* device, int group, std::vector<Member> members, int own)
      : mail_(mail), device_(device), group_(group), members_(std::move(members)), own_(own) {}
  int rank() const override { return own_; }
  int size() const override { return static_cast<int>(members_.size()); }
  void barrier() override { gather_host({}); }

  void exchange(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) override {
    check_none_started();
    if (device_ && device_->takes(stream)) return exchange_by_device(stream, to, from);
    begin(stream, to, from);
    end(stream, number_, from);
  }

  void exchange_chosen(Stream& stream, const std::vector<View>& to, const std::vector<View>& from, const std::vector<RowChoice>& to_rows,
                       const std::vector<RowChoice>& from_rows) override {
    check_none_started();
    if (device_ && device_->takes(stream)) return exchange_by_device(stream, to, from);  // all rows as they stand: only the device knows the choice
    begin(stream, to, from, &to_rows);
    end(stream, number_, from, &from_rows);
  }

  void start(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) override {
    if (device_) return Communicator::start(stream, to, from);
    begin(stream, to, from);
    started_.push_back({number_, from});
    if (started_.size() == 1) mail_.move_meanwhile(true);
  }

  void finish(Stream& stream) override {
    if (device_) return Communicator::finish(stream);
    const Started now = std::move(started_.front());
    started_.pop_front();
    if (started_.empty()) mail_.move_meanwhile(false);
    end(stream, now.number, now.from);
  }

  void forget_started() override {
    if (!started_.empty()) mail_.move_meanwhile(false);
    started_.clear();
    Communicator::forget_started();
  }

  std::vector<std::string> gather_host(const std::string& mine) override {
    check_none_started();
    ++number_;
    for_others([&](std::size_t r) { post(r, {}, mine); });
    std::vector<std::string> all(members_.size());
    all[static_cast<std::size_t>(own_)] = mine;
    for_others([&](std::size_t r) { all[r] = take(r, number_, Collective::records).body; });
    return all;
  }

  // A run that failed may have left ranks at different exchanges.
  void begin_run() {
    forget_started();
    number_ = 0;
  }

 private:
  struct Started {
    std::uint64_t number;
    std::vector<View> from;
  };

  void check_none_started() const {
    if (!started_.empty()) fail(ErrorCode::internal, "rank {} makes another exchange while {} that it started are not finished", own_, started_.size());
  }

  // All at once, from memory of the device to memory of the device, as it stands.
  void exchange_by_device(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) {
    check_views(members_.size(), to, from);
    count_call();
    ++number_;
    const Moving mover = moving();
    copy_own(stream, to, from);
    std::vector<DeviceWire::Part> sends, receives;
    for_others([&](std::size_t r) {
      if (to[r].size() > 0) sends.push_back({to[r], members_[r].process});
      if (from[r].size() == 0) return;
      receives.push_back({from[r], members_[r].process});
      const auto bytes = static_cast<std::int64_t>(bytes_of(from[r]));
      count_bytes(bytes, bytes);
    });
    const std::chrono::milliseconds most = MailPatience::current();
    const auto began = std::chrono::steady_clock::now();
    const auto check = [&] {
      mail_.check_run();
      if (most.count() > 0 && std::chrono::steady_clock::now() - began > most)
        throw LetterLate(fmt::format("rank {} has waited {:.3g} s for memory of other devices", own_, static_cast<double>(most.count()) / 1e3));
    };
    waiting(CollectiveScope::current(), [&] { device_->exchange(stream, sends, receives, check); });
  }

  // Sends everything, or of each view the chosen rows; what goes to this rank itself is there.
  void begin(Stream& stream, const std::vector<View>& to, const std::vector<View>& from, const std::vector<RowChoice>* chosen = nullptr) {
    check_views(members_.size(), to, from);
    count_call();
    ++number_;
    stream.synchronize();
    const Moving mover = moving();
    std::vector<std::string> bodies(members_.size());
    for_others([&](std::size_t r) {
      if (to[r].size() == 0) return;
      bodies[r].resize(bytes_of(to[r]));
      stream.copy(on_host(to[r], bodies[r]), to[r]);
    });
    stream.synchronize();
    for_others([&](std::size_t r) {
      if (to[r].size() == 0) return;
      if (leaves(r) && travels_encoded(to[r])) bodies[r] = encode_bins(reinterpret_cast<const double*>(bodies[r].data()), to[r].size());
      if (leaves(r) && chooses(chosen, r)) bodies[r] = only_rows(bodies[r], chosen_rows(stream, (*chosen)[r]), row_bytes_of(to[r]));
      post(r, to[r], std::move(bodies[r]));
    });
    copy_own(stream, to, from);
  }

  // Receives exchange `number`.
  void end(Stream& stream, std::uint64_t number, const std::vector<View>& from, const std::vector<RowChoice>* chosen = nullptr) {
    const Moving mover = moving();
    std::vector<Letter> letters(members_.size());
    for_others([&](std::size_t r) {
      if (from[r].size() == 0) return;
      letters[r] = take(r, number, CollectiveScope::current());
      const LetterHead& head = letters[r].head;
      if (head.rows != from[r].rows || head.cols != from[r].cols || head.dtype != static_cast<int>(from[r].dtype)) refuse(r, from[r], head.rows, head.cols);
      const std::size_t bytes = bytes_of(from[r]), sent = letters[r].body.size();
      if (leaves(r) && travels_encoded(from[r])) {
        std::string bins(bytes, '\0');
        decode_bins(letters[r].body, from[r].size(), reinterpret_cast<double*>(bins.data()));
        letters[r].body = std::move(bins);
      } else if (leaves(r) && chooses(chosen, r)) {
        letters[r].body = with_other_rows(letters[r].body, chosen_rows(stream, (*chosen)[r]), row_bytes_of(from[r]), bytes);
      } else if (sent != bytes) {
        fail(ErrorCode::internal, "rank {} expects {} bytes of rank {}, which sends {}", own_, bytes, r, sent);
      }
      stream.copy(from[r], on_host(from[r], letters[r].body));
      count_bytes(static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(sent));
    });
    stream.synchronize();
  }

  template <class F>
  void for_others(const F& f) {
    for (std::size_t r = 0; r < members_.size(); ++r)
      if (static_cast<int>(r) != own_) f(r);
  }
  static View on_host(const View& like, std::string& bytes) {
    View view = like;
    view.address = reinterpret_cast<std::uint64_t>(bytes.data());
    view.stride = like.cols;
    return view;
  }
  void copy_own(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) {
    const auto own = static_cast<std::size_t>(own_);
    if (from[own].size() != to[own].size()) refuse(own, from[own], to[own].rows, to[own].cols);
    if (from[own].size() > 0 && from[own].address != to[own].address) stream.copy(from[own], to[own]);
  }
  [[noreturn]] void refuse(std::size_t r, const View& expected, std::int64_t rows, std::int64_t cols) const {
    fail(ErrorCode::internal, "rank {} expects {} x {} of rank {}, which sends {} x {}", own_, expected.rows, expected.cols, r, rows, cols);
  }
  void post(std::size_t r, const View& view, std::string body) {
    LetterHead head{.group = group_, .from = members_[static_cast<std::size_t>(own_)].rank, .to = members_[r].rank, .number = number_};
    head.rows = view.rows, head.cols = view.cols, head.dtype = static_cast<int>(view.dtype), head.element_bytes = view.element_bytes;
    mail_.post(members_[r].process, head, std::move(body));
  }
  Letter take(std::size_t r, std::uint64_t number, Collective what) {
    return waiting(what, [&] { return mail_.take({group_, members_[r].rank, members_[static_cast<std::size_t>(own_)].rank}, number, members_[r].process); });
  }
  // Whether what is sent to that member, and what it sends, goes to another process.
  bool leaves(std::size_t r) const { return members_[r].process != mail_.process(); }
  // Accumulators are encoded on the way; traced ones hold hashes, too.
  static bool travels_encoded(const View& view) { return view.dtype == DType::bins && view.element_bytes == kBinBytes && view.cols % 16 == 0; }
  static bool chooses(const std::vector<RowChoice>* chosen, std::size_t r) { return chosen && (*chosen)[r].index; }
  static std::size_t row_bytes_of(const View& view) { return static_cast<std::size_t>(view.cols * view.element_bytes); }
  static std::size_t bytes_of(const View& view) { return static_cast<std::size_t>(view.size() * view.element_bytes); }

  ProcessMail& mail_;
  DeviceWire* device_;  // null: none
  int group_;
  std::vector<Member> members_;
  int own_;
  std::uint64_t number_ = 0;     // of the newest exchange, in this run
  std::deque<Started> started_;  // and not finished
};

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
