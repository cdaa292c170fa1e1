import re,os
root='/tmp/wt_web/crates/filoplume/src'
for d,_,fs in os.walk(root):
    for f in sorted(fs):
        p=os.path.join(d,f)
        if not f.endswith('.rs'): continue
        L=open(p).read().split('\n')
        if len(L)-1>500: print('FILE',len(L)-1,os.path.relpath(p,root))
        i=0;test=False
        for i,l in enumerate(L):
            if l.startswith('#[cfg(test)]'): break
            m=re.match(r'( *)(pub(\(\w+\))? )?(const )?fn \w+',l)
            if m:
                ind=m[1]
                for j in range(i,len(L)):
                    if L[j].startswith(ind+'}') or (j==i and l.rstrip().endswith('}')) or L[j].rstrip().endswith(';') and j==i: break
                if j-i+1>60: print('FN',j-i+1,os.path.relpath(p,root),l.strip())
