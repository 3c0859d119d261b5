#include "commands.h"

#include "selftest.h"

namespace conclave {

void add_commands(CLI::App& app, Command& chosen) {
  add_selftest(app, chosen);
}

}  // namespace conclave
