/* base: what files that are written whole (plsh/io.h) share with folders that are. */
#ifndef PLSH_BASE_FILE_H
#define PLSH_BASE_FILE_H

/* After a rename the entry of `path` in its folder has to reach the disk too. Some file systems
 * cannot sync a folder; what was renamed is safe by then, so that is no failure. */
void plsh_file_sync_folder(const char *path);

#endif
