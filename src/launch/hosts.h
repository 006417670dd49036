// The hosts that a launch may use, each with slots: how many processes it takes. Plain values.
//   read_hosts("a:2,b")                       // a with 2 slots, b with 1
//   read_hosts_text("a slots=2\nb:1 # new\n", "my-hosts") // a hosts file: Open MPI's form, or one host a line as above
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Host {
  std::string name;
  int slots = 1;
  bool operator==(const Host&) const = default;
};

// Errors: invalid_argument for none, a name twice, a name that is none, slots outside 1 to 64, more than 64 slots in all.
std::vector<Host> read_hosts(std::string_view list);
// `label` names the file in errors, which give the line too.
std::vector<Host> read_hosts_text(std::string_view text, const std::string& label);

// Whether processes there start without a remote shell: localhost, a loopback address, this machine's name.
bool is_this_machine(std::string_view host);
// Those of this machine first, as mpirun orders them; else in the given order.
std::vector<Host> in_mpirun_order(std::vector<Host> hosts);
// "a:2,b:1"
std::string hosts_text(const std::vector<Host>& hosts);
int slots_of(const std::vector<Host>& hosts);

}  // namespace lockstep
