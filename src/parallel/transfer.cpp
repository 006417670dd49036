#include "parallel/transfer.h"

namespace lockstep {

void send_between(Communicator& group, Stream& stream, int source, int target, const View& to, const View& from) {
  std::vector<View> sent(static_cast<std::size_t>(group.size())), received(sent.size());
  sent[static_cast<std::size_t>(target)] = to;
  received[static_cast<std::size_t>(source)] = from;
  group.exchange(stream, sent, received);
}

void swap_over(Communicator& pair, Stream& stream, const View& to, const View& from) {
  const int other = 1 - pair.rank();
  if (to.size() > 0 || from.size() > 0) send_between(pair, stream, other, other, to, from);
}

}  // namespace lockstep
