#include "parallel/process_communicator.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "parallel/bins_codec.h"

namespace lockstep {

namespace {
View on_host(const View& like, std::string& bytes) {
  View view = like;
  view.address = reinterpret_cast<std::uint64_t>(bytes.data());
  view.stride = like.cols;
  return view;
}

// Accumulators are encoded on the way; traced ones hold hashes, too.
bool travels_encoded(const View& view) { return view.dtype == DType::bins && view.element_bytes == kBinBytes && view.cols % 16 == 0; }
bool chooses(const std::vector<RowChoice>* chosen, std::size_t r) { return chosen && (*chosen)[r].index; }
std::size_t view_row_bytes(const View& view) { return static_cast<std::size_t>(view.cols * view.element_bytes); }
std::size_t view_bytes(const View& view) { return static_cast<std::size_t>(view.size() * view.element_bytes); }
}  // namespace

ProcessCommunicator::ProcessCommunicator(ProcessMail& mail, DeviceWire* device, int group, std::vector<Member> members, int own)
    : mail_(mail), device_(device), group_(group), members_(std::move(members)), own_(own) {}

template <class F>
void ProcessCommunicator::for_others(const F& f) {
  for (std::size_t r = 0; r < members_.size(); ++r)
    if (static_cast<int>(r) != own_) f(r);
}

void ProcessCommunicator::exchange(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) {
  check_none_started();
  if (device_ && device_->takes(stream)) return exchange_by_device(stream, to, from);
  begin(stream, to, from);
  end(stream, number_, from);
}

void ProcessCommunicator::exchange_chosen(Stream& stream, const std::vector<View>& to, const std::vector<View>& from, const std::vector<RowChoice>& to_rows,
                                          const std::vector<RowChoice>& from_rows) {
  check_none_started();
  if (device_ && device_->takes(stream)) return exchange_by_device(stream, to, from);  // all rows as they stand: only the device knows the choice
  begin(stream, to, from, &to_rows);
  end(stream, number_, from, &from_rows);
}

void ProcessCommunicator::start(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) {
  if (device_) return Communicator::start(stream, to, from);
  begin(stream, to, from);
  started_.push_back({number_, from});
  if (started_.size() == 1) mail_.move_meanwhile(true);
}

void ProcessCommunicator::finish(Stream& stream) {
  if (device_) return Communicator::finish(stream);
  const Started now = std::move(started_.front());
  started_.pop_front();
  if (started_.empty()) mail_.move_meanwhile(false);
  end(stream, now.number, now.from);
}

void ProcessCommunicator::forget_started() {
  if (!started_.empty()) mail_.move_meanwhile(false);
  started_.clear();
  Communicator::forget_started();
}

std::vector<std::string> ProcessCommunicator::gather_host(const std::string& mine) {
  check_none_started();
  ++number_;
  for_others([&](std::size_t r) { post(r, {}, mine); });
  std::vector<std::string> all(members_.size());
  all[static_cast<std::size_t>(own_)] = mine;
  for_others([&](std::size_t r) { all[r] = take(r, number_, Collective::records).body; });
  return all;
}

void ProcessCommunicator::begin_run() {
  forget_started();
  number_ = 0;
}

void ProcessCommunicator::check_none_started() const {
  if (!started_.empty()) fail(ErrorCode::internal, "rank {} makes another exchange while {} that it started are not finished", own_, started_.size());
}

void ProcessCommunicator::check_views(const std::vector<View>& to, const std::vector<View>& from) const {
  if (to.size() != members_.size() || from.size() != members_.size())
    fail(ErrorCode::internal, "an exchange of {} ranks has {} and {} views", members_.size(), to.size(), from.size());
}

void ProcessCommunicator::exchange_by_device(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) {
  check_views(to, from);
  count_call();
  ++number_;
  const Moving mover = moving();
  copy_own(stream, to, from);
  std::vector<DeviceWire::Part> sends, receives;
  for_others([&](std::size_t r) {
    if (to[r].size() > 0) sends.push_back({to[r], members_[r].process});
    if (from[r].size() == 0) return;
    receives.push_back({from[r], members_[r].process});
    const auto bytes = static_cast<std::int64_t>(view_bytes(from[r]));
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

void ProcessCommunicator::begin(Stream& stream, const std::vector<View>& to, const std::vector<View>& from, const std::vector<RowChoice>* chosen) {
  check_views(to, from);
  count_call();
  ++number_;
  stream.synchronize();
  const Moving mover = moving();
  std::vector<std::string> bodies(members_.size());
  for_others([&](std::size_t r) {
    if (to[r].size() == 0) return;
    bodies[r].resize(view_bytes(to[r]));
    stream.copy(on_host(to[r], bodies[r]), to[r]);
  });
  stream.synchronize();
  for_others([&](std::size_t r) {
    if (to[r].size() == 0) return;
    if (leaves(r) && travels_encoded(to[r])) bodies[r] = encode_bins(reinterpret_cast<const double*>(bodies[r].data()), to[r].size());
    if (leaves(r) && chooses(chosen, r)) bodies[r] = only_rows(bodies[r], chosen_rows(stream, (*chosen)[r]), view_row_bytes(to[r]));
    post(r, to[r], std::move(bodies[r]));
  });
  copy_own(stream, to, from);
}

void ProcessCommunicator::end(Stream& stream, std::uint64_t number, const std::vector<View>& from, const std::vector<RowChoice>* chosen) {
  const Moving mover = moving();
  std::vector<Letter> letters(members_.size());
  for_others([&](std::size_t r) {
    if (from[r].size() == 0) return;
    letters[r] = take(r, number, CollectiveScope::current());
    const LetterHead& head = letters[r].head;
    if (head.rows != from[r].rows || head.cols != from[r].cols || head.dtype != static_cast<int>(from[r].dtype)) refuse(r, from[r], head.rows, head.cols);
    const std::size_t bytes = view_bytes(from[r]), sent = letters[r].body.size();
    if (leaves(r) && travels_encoded(from[r])) {
      std::string bins(bytes, '\0');
      decode_bins(letters[r].body, from[r].size(), reinterpret_cast<double*>(bins.data()));
      letters[r].body = std::move(bins);
    } else if (leaves(r) && chooses(chosen, r)) {
      letters[r].body = with_other_rows(letters[r].body, chosen_rows(stream, (*chosen)[r]), view_row_bytes(from[r]), bytes);
    } else if (sent != bytes) {
      fail(ErrorCode::internal, "rank {} expects {} bytes of rank {}, which sends {}", own_, bytes, r, sent);
    }
    stream.copy(from[r], on_host(from[r], letters[r].body));
    count_bytes(static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(sent));
  });
  stream.synchronize();
}

void ProcessCommunicator::copy_own(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) {
  const auto own = static_cast<std::size_t>(own_);
  if (from[own].size() != to[own].size()) refuse(own, from[own], to[own].rows, to[own].cols);
  if (from[own].size() > 0 && from[own].address != to[own].address) stream.copy(from[own], to[own]);
}

void ProcessCommunicator::refuse(std::size_t r, const View& expected, std::int64_t rows, std::int64_t cols) const {
  fail(ErrorCode::internal, "rank {} expects {} x {} of rank {}, which sends {} x {}", own_, expected.rows, expected.cols, r, rows, cols);
}

void ProcessCommunicator::post(std::size_t r, const View& view, std::string body) {
  LetterHead head{.group = group_, .from = members_[static_cast<std::size_t>(own_)].rank, .to = members_[r].rank, .number = number_};
  head.rows = view.rows, head.cols = view.cols, head.dtype = static_cast<int>(view.dtype), head.element_bytes = view.element_bytes;
  mail_.post(members_[r].process, head, std::move(body));
}

Letter ProcessCommunicator::take(std::size_t r, std::uint64_t number, Collective what) {
  return waiting(what, [&] { return mail_.take({group_, members_[r].rank, members_[static_cast<std::size_t>(own_)].rank}, number, members_[r].process); });
}

}  // namespace lockstep
