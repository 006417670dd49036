// The end of one rank in a group whose ranks are dealt to processes: what it sends to another process goes as letters, or, of memory of devices, by a wire of
// its own. Accumulators, and rows of which some were chosen, are packed on the way. One thread at a time.
//   ProcessCommunicator group(mail, nullptr, 0, {{0, 0}, {1, 1}}, 0); group.barrier();
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "parallel/chosen_rows.h"
#include "parallel/device_wire.h"
#include "parallel/exchange_counts.h"
#include "parallel/mail.h"

namespace lockstep {

class ProcessCommunicator final : public CountingCommunicator, public ChosenRowsTransport {
 public:
  struct Member {
    int rank, process;  // of the whole layout
  };
  // `group` is its number in letters, `own` this rank's place among the members. `mail` and `device` outlive it; null: all goes by `mail`.
  ProcessCommunicator(ProcessMail& mail, DeviceWire* device, int group, std::vector<Member> members, int own);
  int rank() const override { return own_; }
  int size() const override { return static_cast<int>(members_.size()); }
  void barrier() override { gather_host({}); }
  void exchange(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) override;
  void exchange_chosen(Stream& stream, const std::vector<View>& to, const std::vector<View>& from, const std::vector<RowChoice>& to_rows,
                       const std::vector<RowChoice>& from_rows) override;
  void start(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) override;
  void finish(Stream& stream) override;
  void forget_started() override;
  std::vector<std::string> gather_host(const std::string& mine) override;

  // A run that failed may have left ranks at different exchanges.
  void begin_run();

 private:
  struct Started {
    std::uint64_t number;
    std::vector<View> from;
  };

  void check_none_started() const;
  void check_views(const std::vector<View>& to, const std::vector<View>& from) const;
  // All at once, from memory of the device to memory of the device, as it stands.
  void exchange_by_device(Stream& stream, const std::vector<View>& to, const std::vector<View>& from);
  // Sends everything, or of each view the chosen rows; what goes to this rank itself is there.
  void begin(Stream& stream, const std::vector<View>& to, const std::vector<View>& from, const std::vector<RowChoice>* chosen = nullptr);
  // Receives exchange `number`.
  void end(Stream& stream, std::uint64_t number, const std::vector<View>& from, const std::vector<RowChoice>* chosen = nullptr);
  template <class F>
  void for_others(const F& f);
  void copy_own(Stream& stream, const std::vector<View>& to, const std::vector<View>& from);
  [[noreturn]] void refuse(std::size_t r, const View& expected, std::int64_t rows, std::int64_t cols) const;
  void post(std::size_t r, const View& view, std::string body);
  Letter take(std::size_t r, std::uint64_t number, Collective what);
  // Whether what is sent to that member, and what it sends, goes to another process.
  bool leaves(std::size_t r) const { return members_[r].process != mail_.process(); }

  ProcessMail& mail_;
  DeviceWire* device_;  // null: none
  int group_;
  std::vector<Member> members_;
  int own_;
  std::uint64_t number_ = 0;     // of the newest exchange, in this run
  std::deque<Started> started_;  // and not finished
};

}  // namespace lockstep
