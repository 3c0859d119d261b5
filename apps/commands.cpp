#include "commands.h"

#include "bench.h"
#include "convert.h"
#include "inspect.h"
#include "logits.h"
#include "quantize.h"
#include "route.h"
#include "run.h"
#include "selftest.h"
#include "tokenize.h"

namespace conclave {

void add_commands(CLI::App& app, Command& chosen) {
  add_run(app, chosen);
  add_bench(app, chosen);
  add_route(app, chosen);
  add_inspect(app, chosen);
  add_tokenize(app, chosen);
  add_logits(app, chosen);
  add_convert(app, chosen);
  add_quantize(app, chosen);
  add_selftest(app, chosen);
}

}  // namespace conclave
