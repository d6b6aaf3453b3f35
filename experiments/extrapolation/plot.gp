# Perplexity against the length, a panel per sigma, and seconds against the length.
set terminal svg size 1200,430 font "sans,12" background rgb "white"
set output "plot.svg"
set datafile separator tab
set logscale xy
set grid
set xtics ("1k" 1024, "2k" 2048, "4k" 4096, "8k" 8192, "16k" 16384)
set xrange [900:19000]
set xlabel "tokens"
names = "'exact' 'exact, RoPE dropped' 'plsh 1' 'plsh 10 iid' 'plsh 10 stratified' 'plsh 20 iid' 'plsh 20 stratified' 'fixed blocks' 'window' 'window without bias'"
line(n, s) = sprintf("< awk -F'\t' '$1 == \"%s\" && $2 == \"%s\"' summary.tsv | sort -t'\t' -k3,3n", n, s)
set multiplot layout 1,3
do for [sigma in "256 64"] {
    set title sprintf("perplexity, sigma %s for all heads", sigma)
    set yrange [10:20000]
    if (sigma eq "256") { set key top left samplen 1 font ",9" } else { unset key }
    plot line("original", "-") using 3:6 with linespoints lw 2 pt 7 ps 0.5 lc rgb "black" title "own RoPE", \
         for [i = 1:words(names)] line(word(names, i), sigma) using 3:6 with linespoints pt 7 ps 0.5 lc i title word(names, i)
}
set title "seconds of one core, sigma 256"
set yrange [1:300]
plot line("original", "-") using 3:8 with linespoints lw 2 pt 7 ps 0.5 lc rgb "black" title "own RoPE", \
     for [i = 1:words(names)] line(word(names, i), "256") using 3:8 with linespoints pt 7 ps 0.5 lc i title word(names, i)
unset multiplot
