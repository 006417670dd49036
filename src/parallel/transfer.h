// Sends of one rank to another, by Communicator::exchange: over a pair in both ways at once, and within a group. Nothing is added.
//   swap_over(*place.after, stream, hidden, gradient); send_between(*place.stages, stream, 0, 3, mine, {});
#pragma once
#include "parallel/communicator.h"

namespace lockstep {

// Over a pair: sends `to` to its other end, and fills `from` from there; either may be none. Both ends know what is sent: an exchange of nothing is none.
void swap_over(Communicator& pair, Stream& stream, const View& to, const View& from);
// Rank `source` sends `to`, with which rank `target` fills `from`; each of them gives its own view, and `to` and `from` of all others are none. All ranks of
// the group call together.
void send_between(Communicator& group, Stream& stream, int source, int target, const View& to, const View& from);

}  // namespace lockstep
