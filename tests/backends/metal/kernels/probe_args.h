// Arguments of the executor's test kernels, for host and kernels.
#pragma once

struct ProbeArgs {
  enum { kIn, kOut };
  int mode;
};
