/* cli: models that are given by their hub names. */
#ifndef PLSH_CLI_LM_HUB_H
#define PLSH_CLI_LM_HUB_H

/* The `resolve` of options that name a model: a path that exists stays; otherwise owner/name is
 * looked for in the local cache of the Hugging Face hub. */
const char *cli_hub_resolve(const char *value);

#endif
